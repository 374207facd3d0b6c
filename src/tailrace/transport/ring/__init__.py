"""The ring (OSRBuffer): messages between the processes of one node, through shared memory.

One process creates a ring, others attach to it by its address. Many writers (256 members in all)
put messages in, one copy, without locks; one reader takes them out, large ones in place.
With ``shared=True`` several readers share the ring and each message goes to one of them.

>>> with Ring.create(1 << 16) as ring, ring.reader() as reader, ring.writer() as writer:
...     writer.send(b"hello", target=7)
...     message = reader.read()
...     message.target, bytes(message)
True
(7, b'hello')

What is guaranteed

- A sent message is delivered once. Messages of one writer arrive in the order they were sent
  (exclusive ring); between writers there is no order.
- A writer that dies in the middle of a message costs that one message, counted as ``lost``;
  a writer that dies before or after costs nothing. The reader asks whether the writer lives as soon
  as it has nothing else to do; a sleeping reader does so within 10 ms.
- A message whose writer is alive but slow does not hold up those behind it. When ``window``
  messages have passed it, it is skipped; its writer then learns so, and ``send`` puts it in again,
  with twice the window: late, never lost.
- Memory is given back in order, and never while somebody may still read or write it.
- The memory has no name in any file system and is gone with the last process that maps it.

What is not: a reader that takes over from a dead one may see messages again that the dead one had
taken; on a shared ring, messages a dead reader had taken and not released are counted as ``lost``.
Writers and readers belong to the thread that opened them: others are refused, and when it ends they
count as dead. On a full ring small messages find room more easily than large ones.
"""

from tailrace.transport.ring.batch import copies_of
from tailrace.transport.ring.doorbell import Doorbell, wait_on
from tailrace.transport.ring.memory import RingError
from tailrace.transport.ring.reader import Message, Reader
from tailrace.transport.ring.ring import Ring
from tailrace.transport.ring.writer import Writer

__all__ = [
    "Doorbell",
    "Message",
    "Reader",
    "Ring",
    "RingError",
    "Writer",
    "copies_of",
    "wait_on",
]
