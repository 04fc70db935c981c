"""Two programs that give other bits from run to run, and do not under a profile.

    detconf verify examples/races.py:torch_gradient --runs 20
    detconf verify examples/races.py:torch_gradient --runs 20 -p strict
    detconf verify examples/races.py:paddle_program --runs 60
    detconf verify examples/races.py:paddle_program --runs 60 -p strict

Both are seeded; what changes is the order in which threads get to work.
"""

import numpy as np


def torch_gradient() -> dict[str, object]:
    """The gradient of `table[index]` with many duplicate indices, on two threads.

    Two threads add into the same rows of the gradient, in the order in which they arrive, and float addition is not
    associative (pytorch/pytorch#51366). `torch.use_deterministic_algorithms` chooses another kernel.
    """
    import torch

    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(0)
    table = torch.zeros(100, 16, requires_grad=True)
    index = torch.randint(0, 100, (200_000,), generator=generator)
    weights = torch.randn(200_000, 16, generator=generator)
    (table[index] * weights).sum().backward()
    return {"grad": table.grad}


def paddle_program() -> dict[str, np.ndarray]:
    """A static Program with dropout beside another random operation.

    The executor may start either first, and both draw from one generator, so that the same `paddle.seed` gives
    different masks. `FLAGS_new_executor_sequential_run` keeps program order; it counts when the executor is built.
    """
    import paddle

    paddle.enable_static()
    try:
        program = paddle.static.Program()
        with paddle.static.program_guard(program):
            inputs = paddle.static.data("inputs", [64, 64], "float32")
            hidden = inputs
            for _ in range(4):
                hidden = paddle.tanh(hidden)
            result = paddle.nn.functional.dropout(hidden, 0.5) + paddle.rand([64, 64])
        paddle.seed(7)
        executor = paddle.static.Executor(paddle.CPUPlace())
        (value,) = executor.run(program, feed={"inputs": np.ones((64, 64), "float32")}, fetch_list=[result])
    finally:
        paddle.disable_static()
    return {"result": value}
