"""Copies of an epoch in other folders: a savepoint, and what a job that begins with one takes over.

Sources keep notes of their own beside the epochs, below `sources/`: journals, and what Spark notes
of a streaming DataFrame. What is in there after the position of an epoch belongs to it: it has come
and will not come again. So a copy has all that there is when it is made.
"""

from __future__ import annotations

from tailrace.checkpoint.errors import CheckpointError, MissingError
from tailrace.checkpoint.folder import Folder
from tailrace.checkpoint.manifest import Manifest
from tailrace.checkpoint.reading import check_crc
from tailrace.checkpoint.store import Store

NOTES = "sources"
_LAST = "/commits/"
"""What Spark writes when all else of a micro-batch is there."""


def copy_epoch(folder: Folder, manifest: Manifest, target: Folder) -> Manifest:
    """Have an epoch, with all that it needs, in another folder, too.

    It must be the newest one, and none may be committed meanwhile: sources would be told, and
    clear away what they need for this one. Raises a DamagedError, and makes no epoch there, if
    what it needs is not as it was written.
    """
    for name in sorted(manifest.files):
        data = folder.read(name)
        for section in manifest.sections:
            if section.file == name:
                check_crc(folder, section, data)
        target.write(name, data)
    copy_notes(folder, target)
    Store(target).commit(manifest)
    return manifest


def copy_notes(folder: Folder, target: Folder) -> None:
    """Have the notes of sources in another folder, which may have the same already, or more."""
    there = target.sizes(NOTES)
    for name in sorted(folder.names(NOTES), key=lambda name: (_LAST in name, name)):
        try:
            data = folder.read(name)
        except MissingError:
            continue  # its source needs it no more
        if name not in there:
            target.write(name, data)
        elif target.read(name) != data:
            raise CheckpointError(
                f"{name!r} in {target.url!r} is of another job than that in {folder.url!r}; give"
                " the checkpoints a folder of their own"
            )
