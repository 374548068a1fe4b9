"""How the dashboard looks: `content` through grafana-foundation-sdk into Grafana's JSON."""

from __future__ import annotations

import json
from typing import Any, Final

from grafana_foundation_sdk.builders import bargauge, common, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus as ask
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as words
from grafana_foundation_sdk.models import dashboard as parts

from dashboard.content import MARKS, ROWS, VARIABLES
from dashboard.panels import Panel, Query

UID: Final = "stowplan"
PROMETHEUS: Final = parts.DataSourceRef("prometheus", "${datasource}")
HEIGHTS: Final = {"stat": 4, "gauge": 8}


def text() -> str:
    """The whole dashboard as JSON, ended with a newline."""
    board = (
        build.Dashboard("Stowplan")
        .uid(UID)
        .description("What stays on the card, how long requests take, and whether that is what was promised.")
        .tags(["stowplan", "diffusion", "gpu"])
        .readonly()
        .tooltip(parts.DashboardCursorSync.CROSSHAIR)
        .time("now-3h", "now")
        .refresh("30s")
        .with_variable(build.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for name, label, values in VARIABLES:
        board.with_variable(_variable(name, label, values))
    for mark in MARKS:
        board.annotation(
            build.AnnotationQuery()
            .name(mark.name)
            .datasource(PROMETHEUS)
            .enable(True)
            .icon_color(mark.colour)
            .expr(mark.expr)
        )
    for row in ROWS:
        board.with_row(build.Row(row.title))
        for panel in row.panels:
            board.with_panel(_panel(panel))
    value: Any = json.loads(json.dumps(board.build(), cls=JSONEncoder))
    value["annotations"]["list"] = [_titled(entry) for entry in value["annotations"]["list"]]
    for number, drawn in enumerate(value["panels"], 1):
        drawn["id"] = number
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def _titled(entry: dict[str, Any]) -> dict[str, Any]:
    """What Grafana's Prometheus annotations have beside the schema: the words at the mark."""
    words_of = {"titleFormat": entry["name"], "textFormat": "{{pod}} {{reason}}", "tagKeys": "pod,reason"}
    return {**entry, **words_of, "step": "30s"}


def _variable(name: str, label: str, values: str) -> build.QueryVariable:
    return (
        build.QueryVariable(name)
        .label(label)
        .datasource(PROMETHEUS)
        .query({"query": values, "refId": name})
        .refresh(parts.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(parts.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(parts.VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(panel: Panel) -> Any:
    drawn: Any
    if panel.look == "stat":
        drawn = stat.Panel().graph_mode(words.BigValueGraphMode.NONE).text_mode(words.BigValueTextMode.VALUE_AND_NAME)
    elif panel.look == "gauge":
        drawn = bargauge.Panel().orientation(words.VizOrientation.HORIZONTAL)
        drawn = drawn.display_mode(words.BarGaugeDisplayMode.BASIC).color_scheme(_plain())
    else:
        drawn = _over_time(panel)
    drawn = drawn.title(panel.title).description(panel.about).datasource(PROMETHEUS).unit(panel.unit).min(0)
    for number, query in enumerate(panel.queries):
        drawn.with_target(_query(query, chr(ord("A") + number), now=panel.look in HEIGHTS))
    return drawn.height(HEIGHTS.get(panel.look, 9)).span(panel.width)


def _over_time(panel: Panel) -> timeseries.Panel:
    drawn = (
        timeseries.Panel()
        .line_width(1)
        .show_points(words.VisibilityMode.NEVER)
        .fill_opacity({"stack": 40, "bars": 80}.get(panel.look, 8))
        .legend(
            common.VizLegendOptions()
            .display_mode(words.LegendDisplayMode.LIST)
            .placement(words.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(words.TooltipDisplayMode.MULTI).sort(words.SortOrder.DESCENDING))
    )
    if panel.look == "bars":
        drawn.draw_style(words.GraphDrawStyle.BARS)
    if panel.look in ("stack", "bars"):
        drawn.stacking(common.StackingConfig().mode(words.StackingMode.NORMAL).group("A"))
    for number, query in enumerate(panel.queries):
        if query.limit:
            drawn.override_by_query(chr(ord("A") + number), _limit())
    return drawn


def _limit() -> list[parts.DynamicConfigValue]:
    """A dashed line that is stacked on nothing and fills nothing."""
    return [
        parts.DynamicConfigValue(id_val="custom.stacking", value={"mode": "none", "group": "A"}),
        parts.DynamicConfigValue(id_val="custom.fillOpacity", value=0),
        parts.DynamicConfigValue(id_val="custom.lineWidth", value=2),
        parts.DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [8, 6]}),
    ]


def _plain() -> build.FieldColor:
    return build.FieldColor().mode(parts.FieldColorModeId.PALETTE_CLASSIC)


def _query(query: Query, ref: str, *, now: bool) -> ask.Dataquery:
    asked = ask.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref).datasource(PROMETHEUS)
    return asked.instant() if now else asked.range()
