// The values of a metric as a curve: points where it was measured, smoothed by a centred mean.

export const AXES = [
  ["step", "step"],
  ["samples", "samples trained"],
  ["hours", "hours of training"],
];

export function axisValues(metrics, axis) {
  if (axis === "samples") return metrics.columns.samples ?? metrics.steps;
  if (axis !== "hours") return metrics.steps;
  let seconds = 0;
  return (metrics.columns["time/step"] ?? []).map((value, place) => {
    seconds += metrics.steps[place] > 0 ? (value ?? 0) : 0;
    return seconds / 3600;
  });
}

export function makeSeries(metrics, name, axis, smoothing) {
  const [xs, ys, steps] = [[], [], []];
  const column = metrics.columns[name] ?? [];
  const positions = axisValues(metrics, axis);
  column.forEach((value, place) => {
    const x = positions[place];
    if (value === null || x === null || x === undefined) return;
    xs.push(x);
    ys.push(value);
    steps.push(metrics.steps[place]);
  });
  return { xs, ys, steps, smooth: movingMean(ys, windowOf(smoothing, ys.length)) };
}

// The number of values in a mean for a smoothing of 0 to 100 % of a fifth of the curve; odd.
export function windowOf(smoothing, length) {
  return 2 * Math.round((smoothing / 100) * length * 0.1) + 1;
}

export function movingMean(values, window) {
  const half = (window - 1) / 2;
  const total = new Float64Array(values.length + 1);
  values.forEach((value, place) => {
    total[place + 1] = total[place] + value;
  });
  return values.map((_, place) => {
    const [first, last] = [Math.max(place - half, 0), Math.min(place + half + 1, values.length)];
    return (total[last] - total[first]) / (last - first);
  });
}

export function nearest(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}
