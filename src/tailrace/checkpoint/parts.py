"""What a worker adds to an epoch, as a file."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.checkpoint.folder import Folder
from tailrace.checkpoint.sections import EpochFile, Section, framed
from tailrace.runtime.cuts import Part


def write_part(
    folder: Folder, name: str, part: Part, versions: Mapping[str, int] | None = None
) -> tuple[Section, ...]:
    """Write it, and say where what lies. `versions` has the state_version of operators.

    When this returns, what sinks have prepared is on the disk, too.
    """
    for sync in part.syncs:
        sync()
    file = EpochFile(name)
    for piece in part.pieces:
        version = (versions or {}).get(piece.operator, 0)
        if piece.keyed:
            both = zip(piece.blocks, piece.crcs, strict=True)
            blocks = [buffer for block, crc in both for buffer in framed(block, crc)]
            file.add(
                piece.operator,
                piece.index,
                piece.kind,
                blocks,
                piece.entries,
                state_version=version,
            )
        if piece.shared is not None:
            shared = b"".join(framed(piece.shared))
            file.add_shared(piece.operator, piece.index, shared, state_version=version)
    return file.write(folder)
