from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]

def level_names() -> tuple[str, ...]: ...
def built_names() -> tuple[str, ...]: ...
def failed_names() -> tuple[str, ...]: ...
def highest_ids(logits: Floats, count: int) -> NDArray[np.int64]: ...

class Packed:
    rows: int
    inputs: int
    group: int
    order: int
    def select(self, rows: list[int]) -> Floats: ...

class Dense:
    rows: int
    inputs: int
    raw: NDArray[np.uint8]
    def __init__(self, type_index: int, raw: NDArray[np.uint8], inputs: int, *rest: Any) -> None: ...

class Backend:
    name: str
    threads: int
    def __init__(self, name: str, threads: int) -> None: ...
    def pack(self, type_index: int, raw: NDArray[np.uint8], inputs: int) -> Packed: ...
    def multiply_packed(
        self,
        matrices: list[Any],
        x: Floats,
        bits: int,
        block: int,
        signs: Floats | None,
        order: NDArray[np.int64] | None,
    ) -> list[Floats]: ...
    def multiply_dense(
        self,
        matrices: list[Any],
        x: Floats,
        block: int,
        signs: Floats | None,
        order: NDArray[np.int64] | None,
    ) -> list[Floats]: ...
    def rms_norm(self, x: Floats, add: Floats | None, weight: Floats, epsilon: np.float32) -> Floats: ...
    def attend(
        self,
        query: Floats,
        key: Floats,
        value: Floats,
        query_norm: Floats | None,
        key_norm: Floats | None,
        epsilon: np.float32,
        cosines: Floats,
        sines: Floats,
        adjacent: bool,
        keys: Halves,
        values: Halves,
        position: int,
        scale: np.float32,
    ) -> Floats: ...
    def delta_net(
        self,
        inputs: Floats,
        gate: Floats,
        alpha: Floats,
        beta: Floats,
        recent: Floats,
        state: Floats,
        convolution: Floats,
        a: Floats,
        dt: Floats,
        norm: Floats,
        epsilon: np.float32,
    ) -> Floats: ...
    def unfold(self, z: Floats, block: int, signs: Floats) -> Floats: ...
    def silu_product(self, gate: Floats, up: Floats) -> Floats: ...
    def sigmoid_product(self, gate: Floats, values: Floats) -> Floats: ...
    def read(self, data: NDArray[np.uint8]) -> None: ...
