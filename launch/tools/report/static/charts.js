"use strict";
// Charts by uPlot: lines and dots over steps, stacked areas, marks; one cursor and one zoom for all of them.

const SMOOTH = 60; // points of a curve beyond which its running mean is drawn over it
const FEW = 20; // points of a curve that are dots too
const SMALL = 0.4; // shares that stay below are drawn larger
const AXES = new Map([["step", "step"], ["hours", "hours"], ["tokens", "tokens trained"]]);
const charts = new Map();
let axis = "step", zoom = null, printing = false;

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colourOf = (number) => style(`--series-${number}`);
function runningMean(values, window) {
  const last = []; // known values, of which the mean is taken
  let sum = 0;
  return values.map((value) => {
    if (typeof value !== "number") return value;
    sum += last[last.push(value) - 1];
    if (last.length > window) sum -= last[last.length - 1 - window];
    return sum / Math.min(last.length, window);
  });
}

// One x for all: {xs, steps, columns of each series}. A value that is missing is a gap; one that another series has alone is none.
function aligned(chart) {
  const series = list(chart.series).map((own) => ({ ...own, at: axis === "step" ? own.x : own[axis] })).filter((own) => Array.isArray(own.at));
  const xs = [...new Set(series.flatMap((own) => own.at))].filter(Number.isFinite).sort((a, b) => a - b);
  const place = new Map(xs.map((x, at) => [x, at])), steps = new Array(xs.length);
  const spread = (own, values) => {
    const column = new Array(xs.length).fill(undefined);
    own.at.forEach((x, at) => {
      const value = values?.[at], usable = Number.isFinite(value) && !(chart.log && value <= 0);
      if (place.has(x)) column[place.get(x)] = usable ? value : null;
      steps[place.get(x)] ??= own.x[at];
    });
    return column;
  };
  return { xs, steps, series: series.map((own) => ({ ...own, y: spread(own, own.y), low: own.low ? spread(own, own.low) : null, high: own.high ? spread(own, own.high) : null })) };
}

function cumulate(series, isHidden = () => false) {
  const sum = [];
  return series.map((own) => ({ ...own, shown: isHidden(own) ? own.y.map(() => null) : own.y.map((value, at) => (sum[at] = (sum[at] ?? 0) + (value ?? 0))) }));
}

// Layers lie over those that are shown below them, and only those.
function restack(plot, planned, hidden) {
  const layers = cumulate(planned.series, (own) => hidden.has(planned.labels.indexOf(own.label))).reverse();
  plot.setData([planned.xs, ...layers.map((own) => own.shown)], false);
  plot.redraw();
}

// uPlot's own lists of series and data. Stacked areas are painted from the highest to the lowest.
function plan(chart) {
  const { xs, steps, series } = aligned(chart);
  const labels = [...new Set(series.map((own) => own.label))], colours = labels.map((label, at) => series.find((own) => own.label === label).colour ?? at);
  const longest = Math.max(0, ...series.map((own) => own.y.filter((value) => typeof value === "number").length));
  const window = Math.max(1, Math.round(longest / SMOOTH));
  const drawn = [{}], data = [xs], intervals = [];
  const add = (values, options) => { drawn.push({ spanGaps: false, points: { show: false }, ...options }); data.push(values); return data.length - 1; };
  const stacked = chart.stacked ? cumulate(series).reverse() : series.map((own) => ({ ...own, shown: own.y }));
  for (const own of stacked) {
    const number = labels.indexOf(own.label), stroke = colourOf(colours[number]);
    if (chart.stacked || own.kind === "area") add(own.shown, { stroke, fill: stroke, width: 0, owner: number });
    else if (own.kind === "dots") {
      add(own.shown, { stroke, paths: () => null, points: { show: true, size: 6, fill: stroke }, owner: number });
      if (own.low && own.high) intervals.push({ own, stroke, series: drawn.length - 1 });
    } else {
      if (own.low && own.high) {
        for (const values of [own.low, own.high]) add(runningMean(values, window), { stroke: tint(stroke, 0.5), width: 1, dash: [2, 3], owner: number });
      }
      const known = own.y.filter((value) => typeof value === "number").length;
      if (window > 1) add(own.shown, { stroke: tint(stroke, 0.3), width: 1, owner: number });
      add(runningMean(own.shown, window), { stroke, width: 1.6, points: { show: known <= FEW, size: 5, fill: stroke }, owner: number });
    }
  }
  return { xs, steps, series, labels, colours, drawn, data, intervals };
}

function range(chart, planned) {
  const ends = planned.intervals.flatMap(({ own }) => [...own.low, ...own.high]).filter((value) => typeof value === "number");
  return (_, lowest, highest) => {
    if (lowest === null || highest === null) return [0, 1];
    const [low, high] = [Math.min(lowest, ...ends), Math.max(highest, ...ends)];
    const most = Math.max(high, chart.limit && chart.limit.y <= high * 3 ? chart.limit.y : high);
    if (chart.unit === "share" && low >= 0 && high > SMALL && high <= 1) return [-0.02, 1.02];
    if (low >= 0) return [0, (most || 1) * 1.06];
    const margin = (most - low) * 0.06 || Math.abs(most) * 0.1 || 1;
    return [low - margin, most + margin];
  };
}

function drawOver(chart, planned) {
  return (plot) => {
    const { ctx, bbox } = plot, ratio = devicePixelRatio;
    const line = (x0, y0, x1, y1) => { ctx.beginPath(); ctx.moveTo(x0, y0); ctx.lineTo(x1, y1); ctx.stroke(); };
    ctx.save();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.fillStyle = style("--quiet");
    ctx.lineWidth = ratio;
    let written = -Infinity;
    for (const each of list(chart.marks)) {
      const at = axis === "step" ? each.x : planned.xs[planned.steps.findIndex((step) => step >= each.x)];
      const x = plot.valToPos(at, "x", true);
      if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
      ctx.strokeStyle = style(each.kind === "restart" ? "--bad" : "--mark");
      ctx.setLineDash(each.kind === "stage" ? [] : [3 * ratio, 3 * ratio]);
      line(x, bbox.top, x, bbox.top + bbox.height);
      if ((each.kind === "stage" || each.kind === "restart") && x > written + 40 * ratio) {
        const text = shown(each.label), fits = x + ctx.measureText(text).width < bbox.left + bbox.width;
        ctx.textAlign = fits ? "left" : "right";
        ctx.fillText(text, x + (fits ? 3 : -3) * ratio, bbox.top + 11 * ratio);
        written = x;
      }
    }
    ctx.textAlign = "right";
    if (chart.limit) {
      const y = plot.valToPos(chart.limit.y, "y", true);
      ctx.strokeStyle = style("--bad");
      ctx.setLineDash([5 * ratio, 4 * ratio]);
      line(bbox.left, y, bbox.left + bbox.width, y);
      ctx.fillText(shown(chart.limit.label), bbox.left + bbox.width - 4 * ratio, y + (y < bbox.top + 24 * ratio ? 13 : -3) * ratio);
    }
    ctx.setLineDash([]);
    for (const { own, stroke, series } of planned.intervals) {
      if (!plot.series[series].show) continue;
      ctx.strokeStyle = stroke;
      ctx.lineWidth = 1.4 * ratio;
      planned.xs.forEach((value, at) => {
        if (typeof own.low[at] !== "number" || typeof own.high[at] !== "number") return;
        const x = plot.valToPos(value, "x", true);
        line(x, plot.valToPos(own.low[at], "y", true), x, plot.valToPos(own.high[at], "y", true));
      });
    }
    ctx.restore();
  };
}

function readout(planned, at) {
  if (at === null || at === undefined) return "";
  const said = planned.series.filter((own) => typeof own.y[at] === "number").slice(0, 5).map((own) => {
    const interval = typeof own.low?.[at] === "number" ? ` [${brief(own.low[at])}, ${brief(own.high?.[at])}]` : "";
    return `${planned.labels.length > 1 ? `${shorten(own.label, 24)} ` : ""}${brief(own.y[at])}${interval}`;
  });
  return `${AXES.get(axis)} ${brief(planned.xs[at])}: ${said.join(" \u00b7 ")}`;
}

function zoomAll(low, high) {
  zoom = low === null ? null : [low, high];
  for (const { plot } of charts.values()) {
    const xs = plot.data[0];
    plot.setScale("x", zoom ? { min: low, max: high } : { min: xs[0], max: xs.length > 1 ? xs.at(-1) : xs[0] + 1 });
  }
}

function drawChart(figure) {
  const name = figure.dataset.chart, chart = page.charts.get(name);
  charts.get(name)?.plot.destroy();
  charts.delete(name);
  if (!chart) return;
  const planned = plan(chart), holder = figure.querySelector(".plot"), text = figure.querySelector(".readout");
  if (!planned.xs.length || planned.series.every((own) => own.y.every((value) => typeof value !== "number"))) {
    fill(holder, make("p", { class: "empty" }, chart.log ? "no value above 0" : `nothing to draw over ${AXES.get(axis)}`));
    return;
  }
  fill(holder);
  const line = { stroke: style("--quiet"), font: "12px system-ui, sans-serif", ticks: { show: false } };
  const grid = { stroke: style("--line"), width: 1 };
  const isPower = (value) => Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9;
  const onPowers = (_, values) => values.map((value) => (value && isPower(value) ? value : null));
  const powers = (_, values) => {
    const few = values.filter(isPower).length < 2;
    return values.map((value) => (value && (few || isPower(value)) ? value.toExponential(0).replace("e+", "e") : ""));
  };
  const plot = new uPlot({
    width: holder.clientWidth || 380, height: printing ? 150 : 168, padding: [8, 14, 0, 0], series: planned.drawn, legend: { show: false },
    scales: { x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) }, y: chart.log ? { distr: 3, range: (_, low, high) => uPlot.rangeLog(Math.min(low, chart.limit?.y ?? low), Math.max(high, chart.limit?.y ?? high), 10, true) } : { range: range(chart, planned) } },
    axes: [{ ...line, grid: { show: false }, size: 24, space: 60, values: (_, values) => values.map(brief) },
      { ...line, grid: chart.log ? { ...grid, filter: onPowers } : grid, size: 46, space: 32, values: chart.log ? powers : (_, values) => values.map(brief) }],
    cursor: { y: false, drag: { x: true, y: false, setScale: false, click: () => {} }, points: { size: 5 },
      sync: { key: "all", setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } } },
    hooks: {
      draw: [drawOver(chart, planned)],
      setCursor: [(own) => { text.textContent = shown(readout(planned, own.cursor.idx)); }],
      setSelect: [(own) => {
        const { left, width } = own.select;
        if (width > 4) zoomAll(own.posToVal(left, "x"), own.posToVal(left + width, "x"));
        own.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      }],
    },
  }, planned.data, holder);
  let pressedAt = 0, waiting = 0; // a second click may make it a double one
  plot.over.addEventListener("mousedown", (event) => { pressedAt = event.clientX; });
  plot.over.addEventListener("click", (event) => {
    const step = planned.steps[plot.cursor.idx];
    clearTimeout(waiting);
    if (Math.abs(event.clientX - pressedAt) < 4 && step !== undefined && store.size) waiting = setTimeout(() => { location.hash = `#t?step=${step}`; }, 250);
  });
  plot.over.addEventListener("dblclick", () => {
    clearTimeout(waiting);
    zoomAll(null);
  });
  charts.set(name, { plot, planned });
  const hidden = new Set();
  const hide = (number, isHidden) => {
    if (isHidden) hidden.add(number);
    else hidden.delete(number);
    if (chart.stacked) restack(plot, planned, hidden);
    plot.series.forEach((own, at) => { if (own.owner === number) plot.setSeries(at, { show: !isHidden }); });
  };
  if (zoom) plot.setScale("x", { min: zoom[0], max: zoom[1] });
  fill(figure.querySelector(".legend"), planned.labels.length < 2 ? [] : planned.labels.slice(0, 12).map((label, number) => drawKey(label, number, planned.colours[number], hide)));
}

function drawKey(label, number, colour, hide) {
  const box = make("span", { class: "swatch" });
  box.style.backgroundColor = colourOf(colour);
  const key = button("", () => {
    hide(number, key.classList.toggle("off"));
  }, `${label}: click to hide or show`);
  key.append(box, shown(shorten(label, 40)));
  return key;
}

// The numbers as they were given, a row for each point.
function asCsv(chart) {
  const cell = (value) => (typeof value === "string" ? `"${shown(value).replaceAll('"', '""')}"` : value ?? "");
  const rows = list(chart.series).flatMap((own) => own.x.map((x, at) => [own.label, own.stage ?? "", x, own.y[at], own.low?.[at], own.high?.[at]]));
  return [["series", "stage", chart.x ?? "step", "value", "low", "high"], ...rows].map((row) => row.map(cell).join(",")).join("\n");
}

function drawCharts() {
  for (const figure of document.querySelectorAll(".chart")) if (!figure.closest("details:not([open])")) drawChart(figure);
}
