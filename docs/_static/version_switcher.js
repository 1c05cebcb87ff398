// The list of versions is a script, and called with them: one file may load another as a script alone, without a server.
const switcher = document.currentScript;
function showVersions(versions) {
  const shown = document.querySelector(".sidebar-versions");
  const { version, page, root } = switcher.dataset;
  if (!versions.some((each) => each !== version)) return;
  const select = shown.querySelector("select");
  for (const each of versions) select.add(new Option(each, each, false, each === version));
  select.addEventListener("change", () => {
    // A page that another version lacks is a dead link: its first page is not.
    const there = new URL(`${root}../${select.value}/`, location.href);
    const other = new URL(page, there);
    const go = (found) => { location.href = found; };
    if (location.protocol === "file:") return go(new URL("index.html", there));
    fetch(other, { method: "HEAD" }).then((answer) => go(answer.ok ? other : new URL("index.html", there)));
  });
  shown.hidden = false;
}
const list = document.createElement("script");
list.src = new URL(`${switcher.dataset.root}../versions.js`, location.href);
document.head.append(list);
