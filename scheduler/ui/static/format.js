/** Numbers, sizes and times in words. */

/** @param {number} mib */
export function memory(mib) {
  if (mib < 1024) return `${mib} MiB`;
  const gib = mib / 1024;
  return `${gib < 100 && mib % 1024 ? gib.toFixed(1) : Math.round(gib).toLocaleString('en')} GiB`;
}

/** Millicards in percent of a card. @param {number} millicards */
export function cores(millicards) {
  return `${Math.round(millicards / 10)} %`;
}

/** @param {number} count @param {string} one @param {string} [many] */
export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}

/** The time of day. @param {number} ms */
export function time(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
}

/** @param {number} seconds */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** @param {number} part @param {number} whole */
export function percent(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : '–';
}

/** Date and time of a moment in Unix seconds; the date only if it is not today. @param {number} seconds */
export function stamp(seconds) {
  const moment = new Date(seconds * 1000);
  const isToday = moment.toDateString() === new Date().toDateString();
  return isToday ? time(seconds * 1000) : `${moment.toLocaleDateString()} ${time(seconds * 1000)}`;
}

/** An amount of a resource in the units of a container, CPU in thousandths and memory in bytes; its name without one. */
/** @param {string} name @param {number} [amount] */
export function resource(name, amount) {
  const short = name.replace(/^nvidia\.com\//, '');
  if (amount === undefined) return { gpumem: 'GPU memory', gpucores: 'compute', gpu: 'slots' }[short] ?? short;
  if (short === 'gpumem') return memory(amount);
  if (short === 'gpucores') return `${amount.toLocaleString('en')} % compute`;
  if (short === 'gpu') return plural(amount, 'slot');
  if (short === 'cpu') return `${(amount / 1000).toLocaleString('en')} CPU`;
  if (short === 'memory') return `${Math.round(amount / 2 ** 30).toLocaleString('en')} GiB RAM`;
  return `${amount.toLocaleString('en')} ${short}`;
}
