// What the parts of the page share, such as the chosen step; whoever shows it listens.

export function createStore(values) {
  const listeners = [];
  return {
    get: (key) => values[key],
    set(key, value) {
      if (values[key] === value) return;
      values[key] = value;
      listeners.filter(([keys]) => keys.includes(key)).forEach(([, listener]) => listener());
    },
    on: (keys, listener) => listeners.push([keys, listener]),
  };
}
