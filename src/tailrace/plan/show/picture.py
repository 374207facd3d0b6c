"""A plan as a picture: nodes, workers, instances, and lines as wide as the traffic.

One HTML file that needs nothing else, in the reader's light or dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from math import ceil, hypot, sqrt

from tailrace.graph.model import Graph
from tailrace.plan.model.loads import ExternalRate
from tailrace.plan.model.machine import Machine
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan
from tailrace.plan.show.explain import Explained, Group, explained, lines, rates

_WIDTH, _ROW, _HEAD, _TITLE = 300.0, 20.0, 46.0, 32.0
_PAD, _GAP, _MARGIN = 14.0, 110.0, 40.0
_MOST_BEND = 60.0
_WIDEST = 14.0
_THINNEST = 0.75
_LABEL_CHARACTERS = 34

_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1c2430; --soft: #5b6675;
  --node: #f2f4f7; --box: #ffffff; --edge: #c3cad4; --bar: #2f7d5b; --full: #c0392b;
  --track: #e3e7ec; --line: #3b6fb6; --far: #b6652b; }
@media (prefers-color-scheme: dark) { :root { --page: #14181e; --ink: #e6eaf0; --soft: #98a3b3;
  --node: #1c222b; --box: #252d38; --edge: #414c5b; --bar: #4fb286; --full: #e8695b;
  --track: #39434f; --line: #7aa7e8; --far: #e09a62; } }
body { margin: 24px; background: var(--page); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
svg { max-width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .soft { fill: var(--soft); } svg .name { font-weight: 600; }
.node { fill: var(--node); } .box { fill: var(--box); stroke: var(--edge); }
.track { fill: var(--track); } .bar { fill: var(--bar); } .bar.full { fill: var(--full); }
.line { fill: none; stroke: var(--line); opacity: .75; } .line.far { stroke: var(--far); }
.tip { fill: var(--line); opacity: .9; } .tip.far { fill: var(--far); }
pre { overflow-x: auto; padding: 12px; background: var(--node); border-radius: 6px; }
"""


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2

    def edge_towards(self, x: float, y: float) -> tuple[float, float]:
        """Where the line from the middle to a point leaves the box."""
        mx, my = self.middle
        dx, dy = x - mx, y - my
        reach = max(abs(dx) / (self.width / 2), abs(dy) / (self.height / 2), 1e-9)
        return mx + dx / reach, my + dy / reach


def picture(
    graph: Graph,
    plan: Plan,
    profile: Profile,
    machine: Machine,
    external_rate: ExternalRate = None,
) -> str:
    """The plan and its prediction as an HTML page."""
    told = explained(graph, plan, profile, machine, external_rate)
    title = escape(f"{graph.name}: plan of {plan.scheduler}")
    text = escape("\n".join(lines(told)))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n"
        f"<p>Expected: {rates(told)}."
        " Lines are as wide as the bytes per second they stand for; those that leave a node have"
        " another colour.</p>\n"
        f"{svg(told)}\n<pre>{text}</pre>\n</body></html>\n"
    )


def svg(told: Explained) -> str:
    """The drawing alone."""
    nodes, boxes, width, height = _layout(told)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}"><title>who runs where</title>'
    ]
    for node, box in nodes.items():
        parts.append(_rectangle(box, "node", 10))
        name = escape(told.node_name(node))
        parts.append(_text(box.x + _PAD, box.y + 20, name, "name"))
    parts += _lines(told, boxes)
    for place, box in enumerate(boxes):
        parts += _place(told, place, box)
    parts.append("</svg>")
    return "\n".join(parts)


def _layout(told: Explained) -> tuple[dict[int, _Box], list[_Box], float, float]:
    """Nodes in a square, the places of each in one too; all places are of one size.

    Several nodes have their places one below the other: most lines then go across.
    """
    plan = told.plan
    names = sorted({place.node for place in plan.places})
    here = {node: [p for p, at in enumerate(plan.places) if at.node == node] for node in names}
    rows = max(len(told.groups(p)) for p in range(len(plan.places)))
    tall = _HEAD + _ROW * max(rows, 1) + _PAD
    most = max(map(len, here.values()))
    columns = ceil(sqrt(most)) if len(names) == 1 else 1
    wide = 2 * _PAD + columns * (_WIDTH + _GAP) - _GAP
    deep = _TITLE + _PAD + ceil(most / columns) * (tall + _GAP) - _GAP
    across = ceil(sqrt(len(names)))
    boxes = [_Box(0, 0, 0, 0)] * len(plan.places)
    nodes: dict[int, _Box] = {}
    for n, node in enumerate(names):
        x = _MARGIN + n % across * (wide + _GAP)
        y = _MARGIN + n // across * (deep + _GAP)
        nodes[node] = _Box(x, y, wide, deep)
        for i, p in enumerate(here[node]):
            left = x + _PAD + i % columns * (_WIDTH + _GAP)
            boxes[p] = _Box(left, y + _TITLE + i // columns * (tall + _GAP), _WIDTH, tall)
    width = 2 * _MARGIN + across * (wide + _GAP) - _GAP
    height = 2 * _MARGIN + ceil(len(names) / across) * (deep + _GAP) - _GAP
    return nodes, boxes, width, height


def _place(told: Explained, place: int, box: _Box) -> Iterator[str]:
    plan = told.plan
    used = told.used("place", place)
    core = plan.core_of[place] if plan.core_of else None
    where = f"socket {plan.places[place].socket}" + (f", core {core}" if core is not None else "")
    yield _rectangle(box, "box", 6)
    yield _text(box.x + _PAD, box.y + 20, told.place_name(place), "name")
    yield _text(box.x + box.width - _PAD, box.y + 20, f"{where}, {used:.0%} busy", "soft", "end")
    yield _bar(box.x + _PAD, box.y + 30, box.width - 2 * _PAD, 5, used)
    for i, group in enumerate(told.groups(place)):
        y = box.y + _HEAD + _ROW * i + 12
        yield f"<g><title>{escape(_detail(told, group))}</title>"
        yield _text(box.x + _PAD, y, escape(_short(_name(group))))
        busy = group.busy * len(group.instances) / plan.places[place].cores
        yield _bar(box.x + box.width - _PAD - 50, y - 8, 50, 8, busy)
        yield "</g>"


def _name(group: Group) -> str:
    count = len(group.instances)
    return group.chain.label + (f" x {count}" if count > 1 else "")


def _short(text: str) -> str:
    return text if len(text) <= _LABEL_CHARACTERS else text[: _LABEL_CHARACTERS - 1] + "…"


def _detail(told: Explained, group: Group) -> str:
    names = ", ".join(told.instance_name(i) for i in group.instances[:8])
    each = " each" if len(group.instances) > 1 else ""
    return f"{names}: {group.rate:,.0f} records/s, {group.busy:.1%} of a core{each}"


def _lines(told: Explained, boxes: list[_Box]) -> Iterator[str]:
    """Curves between places, bent to one side so that both directions can be seen."""
    traffic = {pair: flow for pair, flow in told.prediction.traffic.items() if pair[0] != pair[1]}
    most = max((size for _, size in traffic.values()), default=0.0)
    if not most:
        return
    # Thin ones last, so that wide ones do not hide them.
    for (p, q), (records, size) in sorted(traffic.items(), key=lambda item: -item[1][1]):
        far = " far" if told.plan.places[p].node != told.plan.places[q].node else ""
        x1, y1 = boxes[p].edge_towards(*boxes[q].middle)
        x2, y2 = boxes[q].edge_towards(*boxes[p].middle)
        length = max(hypot(x2 - x1, y2 - y1), 1.0)
        aside_x, aside_y = (y1 - y2) / length, (x2 - x1) / length
        bend = min(12 + 0.12 * length, _MOST_BEND)
        x1, y1, x2, y2 = (
            x1 + 10 * aside_x,
            y1 + 10 * aside_y,
            x2 + 10 * aside_x,
            y2 + 10 * aside_y,
        )
        middle_x = (x1 + x2) / 2 + bend * aside_x
        middle_y = (y1 + y2) / 2 + bend * aside_y
        width = max(_WIDEST * size / most, _THINNEST)
        detail = (
            f"{told.place_name(p)} to {told.place_name(q)}: {records:,.0f} records/s,"
            f" {size / 1e6:,.2f} MB/s"
        )
        yield f"<g><title>{escape(detail)}</title>"
        yield (
            f'<path class="line{far}" stroke-width="{width:.2f}"'
            f' d="M{x1:.1f} {y1:.1f} Q{middle_x:.1f} {middle_y:.1f} {x2:.1f} {y2:.1f}"/>'
        )
        yield f'<circle class="tip{far}" cx="{x2:.1f}" cy="{y2:.1f}" r="{width / 2 + 2:.1f}"/>'
        yield "</g>"


def _rectangle(box: _Box, kind: str, radius: float) -> str:
    return (
        f'<rect class="{kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"'
        f' height="{box.height:.1f}" rx="{radius}"/>'
    )


def _bar(x: float, y: float, width: float, height: float, used: float) -> str:
    full = " full" if used > 0.95 else ""
    filled = width * min(max(used, 0.0), 1.0)

    def rectangle(kind: str, wide: float) -> str:
        return (
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{height}"'
            ' rx="2"/>'
        )

    return rectangle("track", width) + rectangle(f"bar{full}", filled)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
