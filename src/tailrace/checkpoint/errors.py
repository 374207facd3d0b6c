"""What can go wrong with a checkpoint, told apart by what to do about it."""

from __future__ import annotations


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read: no room, no permission, no connection.

    Nothing is known to be damaged; what was committed is as good as before.
    """


class DamagedError(CheckpointError):
    """Something is missing, short or altered. The epoch that names it is passed over."""


class MissingError(DamagedError):
    """A file that was expected is not there."""


class VersionError(CheckpointError):
    """Written in a format that this version of Tailrace does not know.

    Never passed over: whoever goes on from an older epoch undoes what the newer program has done.
    """


class UncertainError(CheckpointError):
    """An epoch may be committed or not: the storage failed, and left nobody knowing how far it was.

    Whoever goes on does so from the newest epoch that there is by then, and aborts nothing before.
    """


class LeaseHeldError(CheckpointError):
    """Somebody else writes to the folder."""


class LeaseLostError(CheckpointError):
    """Somebody else has taken the folder over: nothing may be committed any more."""
