"""Train a small network on the UCI digits with torch, under `strict`; the same bits come out every time.

    python examples/digits_torch.py
    detconf verify --runs 2 -- python examples/digits_torch.py

The 1,797 images of 8x8 pixels come with scikit-learn (Alpaydin and Kaynak, 1998); nothing is downloaded.
"""

import detconf

session = detconf.apply("strict")  # first: what frameworks read at import is then in time

import torch
from sklearn.datasets import load_digits
from torch import nn

EPOCHS, BATCH = 5, 64


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    data = torch.utils.data.TensorDataset(torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels))
    train, held_out = torch.utils.data.random_split(data, [1500, 297])
    loader = torch.utils.data.DataLoader(train, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1024, 64), nn.GELU(), nn.Linear(64, 10)
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(EPOCHS):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
        detconf.publish("loss", loss)
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    model.eval()
    inputs, targets = next(iter(torch.utils.data.DataLoader(held_out, batch_size=len(held_out))))
    print(f"accuracy on held-out digits: {(model(inputs).argmax(1) == targets).float().mean().item():.3f}")
    detconf.publish("weights", model.state_dict())
    print(session.attestation)
    print("drift:", [entry.knob for entry in session.check().entries] or "none")


if __name__ == "__main__":
    main()
