"""Train a small network on the UCI digits with Paddle, under `strict`; the same bits come out every time.

    python examples/digits_paddle.py
    detconf verify --runs 2 -- python examples/digits_paddle.py

The 1,797 images of 8x8 pixels come with scikit-learn (Alpaydin and Kaynak, 1998); nothing is downloaded.
"""

import detconf

session = detconf.apply("strict")  # first: what frameworks read at import is then in time

import numpy as np
import paddle
from paddle import nn
from sklearn.datasets import load_digits

EPOCHS, BATCH = 5, 64


class Digits(paddle.io.Dataset):
    """Images as float32 of shape (1, 8, 8) in [0, 1], labels as int64."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        super().__init__()
        self.images = (images / 16).astype("float32").reshape(-1, 1, 8, 8)
        self.labels = labels.astype("int64")

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        return self.images[index], self.labels[index]

    def __len__(self) -> int:
        return len(self.images)


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    # The order of a shuffling DataLoader comes from NumPy's global generator, which the profile has seeded too.
    loader = paddle.io.DataLoader(Digits(images[:1500], labels[:1500]), batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        nn.Conv2D(1, 16, 3, padding=1), nn.BatchNorm2D(16), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1024, 64), nn.GELU(), nn.Linear(64, 10)
    )  # fmt: skip
    optimizer = paddle.optimizer.AdamW(3e-3, parameters=model.parameters())
    for epoch in range(EPOCHS):
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        detconf.publish("loss", loss)
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    model.eval()
    held_out = Digits(images[1500:], labels[1500:])
    guessed = model(paddle.to_tensor(held_out.images)).argmax(1).numpy()
    print(f"accuracy on held-out digits: {(guessed == held_out.labels).mean():.3f}")
    detconf.publish("weights", model.state_dict())
    print(session.attestation)
    print("drift:", [entry.knob for entry in session.check().entries] or "none")


if __name__ == "__main__":
    main()
