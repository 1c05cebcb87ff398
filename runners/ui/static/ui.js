// Reads the page anew and changes what is different, so that focus, selection and scrolling stay.
const every = Number(document.body.dataset.refreshMs);
const status = document.getElementById("connection");
async function refresh() {
  try {
    if (!document.hidden) {
      const answer = await fetch(location.href, { signal: AbortSignal.timeout(5000) });
      const read = new DOMParser().parseFromString(await answer.text(), "text/html");
      Idiomorph.morph(document.querySelector("main"), read.querySelector("main"), { ignoreActiveValue: true });
      status.textContent = "live";
      document.body.classList.remove("lost");
    }
  } catch (error) {
    status.textContent = "no answer from dataflow ui: what is shown may be old";
    document.body.classList.add("lost");
  }
  setTimeout(refresh, every);
}
if (every) setTimeout(refresh, every);
