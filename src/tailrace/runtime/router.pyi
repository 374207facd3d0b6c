from array import array

from tailrace.graph.model import Record, Stream
from tailrace.routing.sketch import PairSketch
from tailrace.routing.slots import Routes
from tailrace.runtime.exchange import Exchange, Lane, Stamp
from tailrace.runtime.keypairs import PairCounter
from tailrace.runtime.markers import Marker

class Router:
    watermark: int
    ended: bool
    def __init__(
        self,
        exchange: Exchange,
        stream: Stream,
        index: int,
        rank: int,
        stamp: Stamp,
        full: set[Lane],
        routes: Routes | None = None,
    ) -> None: ...
    @property
    def exchange(self) -> Exchange: ...
    @property
    def index(self) -> int: ...
    @property
    def output(self) -> str: ...
    def relaid(self) -> None: ...
    def reroute(self, routes: Routes) -> None: ...
    def count(self, counter: PairCounter | None, sketch: PairSketch | None) -> None: ...
    def sent_to(self) -> array[int]: ...
    def mark(self, marker: Marker) -> None: ...
    def put(self, records: list[Record]) -> None: ...
