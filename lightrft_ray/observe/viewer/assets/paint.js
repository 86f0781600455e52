// Draws curves onto a canvas.

import { niceTicks, padded, tickText } from "./ticks.js";

const MARGIN = { left: 46, right: 12, top: 8, bottom: 22 };
const FEW_POINTS = 60; // up to here each point gets a dot

export function layout(width, height, series, zoom) {
  const xs = series.flatMap(({ xs }) => (xs.length ? [xs[0], xs[xs.length - 1]] : []));
  const [low, high] = zoom ?? [Math.min(...xs), Math.max(...xs)];
  const [bottom, top] = padded(...extent(series, low, high));
  const plot = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const span = high > low ? high - low : 1;
  return {
    ...plot,
    low,
    high,
    bottom,
    top,
    x: (value) => MARGIN.left + ((value - low) / span) * plot.width,
    y: (value) => MARGIN.top + (1 - (value - bottom) / (top - bottom)) * plot.height,
    value: (pixel) => low + ((pixel - MARGIN.left) / plot.width) * span,
  };
}

function extent(series, low, high) {
  let [least, most] = [Infinity, -Infinity];
  for (const { xs, ys, smooth } of series) {
    xs.forEach((x, place) => {
      if (x < low || x > high) return;
      least = Math.min(least, ys[place], smooth[place]);
      most = Math.max(most, ys[place], smooth[place]);
    });
  }
  return least <= most ? [least, most] : [0, 1];
}

export function paint(canvas, place, series, smoothed) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const theme = (name) => style.getPropertyValue(name).trim();
  paintAxes(context, place, theme, style.fontFamily);
  context.save();
  context.beginPath();
  context.rect(MARGIN.left - 3, 0, place.width + 6, MARGIN.top + place.height + 3);
  context.clip();
  for (const each of series) paintSeries(context, place, each, theme(each.colour), smoothed);
  context.restore();
}

function paintAxes(context, place, theme, font) {
  context.font = `11px ${font}`;
  context.fillStyle = theme("--muted");
  context.strokeStyle = theme("--grid");
  context.lineWidth = 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of niceTicks(place.bottom, place.top, Math.floor(place.height / 32))) {
    const y = Math.round(place.y(value)) + 0.5;
    line(context, MARGIN.left, y, MARGIN.left + place.width, y);
    context.fillText(tickText(value), MARGIN.left - 7, y);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const base = MARGIN.top + place.height;
  for (const value of niceTicks(place.low, place.high, Math.floor(place.width / 70))) {
    context.fillText(tickText(value), place.x(value), base + 7);
  }
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

function paintSeries(context, place, { xs, ys, smooth }, colour, smoothed) {
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineJoin = "round";
  const few = xs.length <= FEW_POINTS;
  if (smoothed && !few) {
    context.globalAlpha = 0.28;
    trace(context, place, xs, ys, 1);
    context.globalAlpha = 1;
  }
  trace(context, place, xs, smoothed ? smooth : ys, 1.8);
  if (few) dots(context, place, xs, ys);
}

function trace(context, place, xs, ys, width) {
  context.lineWidth = width;
  context.beginPath();
  xs.forEach((x, index) => context.lineTo(place.x(x), place.y(ys[index])));
  context.stroke();
}

function dots(context, place, xs, ys) {
  xs.forEach((x, index) => {
    context.beginPath();
    context.arc(place.x(x), place.y(ys[index]), 2.6, 0, 7);
    context.fill();
  });
}
