// Numbers as a person reads them.

const DAY = 86400;

export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (Number.isInteger(value) && size < 1e6) return value.toLocaleString("en");
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("e+", "e");
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 8 });
}

export function withUnit(value, unit) {
  if (value === null || value === undefined) return "–";
  return unit && unit !== "1" ? `${number(value)} ${unit}` : number(value);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.round(seconds);
  const [days, hours] = [Math.floor(whole / DAY), Math.floor((whole % DAY) / 3600)];
  const minutes = Math.floor((whole % 3600) / 60);
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${String(minutes).padStart(2, "0")} m`;
  return minutes ? `${minutes} m ${String(whole % 60).padStart(2, "0")} s` : `${whole} s`;
}

export function excerpt(text, length) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > length ? `${line.slice(0, length)}…` : line;
}
