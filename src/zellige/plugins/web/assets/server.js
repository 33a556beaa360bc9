// Requests to the server of the page.

const post = (path, body, signal) =>
  fetch(path, {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body), signal});

export const listed = async () => (await fetch("/api/models")).json();

// the lines of an answer, each parsed as it arrives; an error is thrown as the server says it
export async function* lines(path, body, signal) {
  const answer = await post(path, body, signal);
  if (!answer.ok) throw new Error((await answer.json()).error);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const {value, done} = await reader.read();
    const parts = (rest + (value ?? "")).split("\n");
    rest = parts.pop();
    for (const part of parts) {
      const line = JSON.parse(part);
      if (line.error) throw new Error(line.error);
      yield line;
    }
    if (done) return;
  }
}

// a run as a file that the server makes
export async function download(body, name) {
  const answer = await post("/api/export", body);
  if (!answer.ok) throw new Error((await answer.json()).error);
  handOver(await answer.blob(), name);
}

// to the browser, as a download
export function handOver(blob, name) {
  const link = Object.assign(document.createElement("a"), {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
