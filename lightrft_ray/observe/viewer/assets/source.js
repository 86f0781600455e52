// Where the page gets a run from: the server that sent it, or the data inside a static page.

export function openSource() {
  const data = JSON.parse(document.getElementById("data").textContent);
  return data === null ? served() : embedded(data.runs);
}

function served() {
  return {
    live: true,
    runs: () => ask("api/runs"),
    metrics: (run) => ask(`api/runs/${run}/metrics`),
    samplesOf: (run, step) => ask(`api/runs/${run}/samples?from=${step}&single=1`),
    samplesFrom: (run, step) => ask(`api/runs/${run}/samples?from=${step}`),
    timeline: (run, step, count) => ask(`api/runs/${run}/timeline?from=${step}&count=${count}`),
    image: (run, file) => `files/${run}/${file.split("/").map(encodeURIComponent).join("/")}`,
  };
}

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

function embedded(runs) {
  const samples = (run, wanted) => ({ samples: runs[run].samples.filter(wanted), next: null, damaged: 0 });
  return {
    live: false,
    runs: async () => runs.map((run) => run.about),
    metrics: async (run) => runs[run].metrics,
    samplesOf: async (run, step) => samples(run, (sample) => sample.step === step),
    samplesFrom: async (run, step) => samples(run, (sample) => sample.step >= step),
    timeline: async (run, step, count) =>
      runs[run].timeline.filter((row) => row.step >= step).slice(0, count),
    image: (run, file) => runs[run].images[file] ?? null,
  };
}
