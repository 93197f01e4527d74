// Figures as people read them; durations as `pipeline/durations.py` has them.

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const size = Math.abs(ms);
  if (size < 1000) return `${Math.round(ms)} ms`;
  if (size < 100_000) return `${(ms / 1000).toFixed(1)} s`;
  if (size < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (size < 172_800_000) return `${(ms / 3_600_000).toFixed(1)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

export function clock(ms, exact = false) {
  if (!Number.isFinite(ms) || Math.abs(ms) > 8.64e15) return String(ms);
  // Small numbers are simulated time.
  if (ms < 1e11) return `${ms / 1000} s`;
  return new Date(ms).toISOString().slice(11, exact ? 23 : 19);
}

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  return `${count(perSecond >= 100 ? Math.round(perSecond) : perSecond)} rows/s`;
}

export function count(number) {
  if (number === null || number === undefined) return "–";
  return number.toLocaleString("en").replaceAll(",", "\u2009");
}
