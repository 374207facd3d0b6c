from collections.abc import Iterator
from typing import Final

from typing_extensions import Buffer

RAW: Final = 0
BATCH: Final = 1

def records_of(batch: Buffer) -> Iterator[memoryview]: ...
def copies_of(batch: Buffer) -> list[bytes]: ...
