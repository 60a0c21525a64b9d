// Two things that Furo leaves to its site. Without scripts the pages are whole, too.

// The selector of versions. ../versions.js, which lists them, is loaded as a script and not fetched:
// so the site works from a folder, without a server.
function offerVersions() {
  const root = document.documentElement.dataset.content_root;
  const here = new URL(root, location.href).pathname.split("/").filter(Boolean).pop();
  for (const select of document.querySelectorAll(".site-versions select")) {
    for (const name of window.siteVersions ?? [here]) {
      select.add(new Option(name, name, name === here, name === here));
    }
    select.addEventListener("change", () => {
      location.href = `${root}../${select.value}/index.html`;
    });
  }
}

// Tables: cells with sentences are not squeezed; short names stay whole, long ones break at joints.
function shapeTables() {
  for (const cell of document.querySelectorAll("article td")) {
    cell.classList.toggle("site-prose", cell.textContent.length > 60);
    for (const code of cell.querySelectorAll("code .pre, code:not(:has(.pre))")) {
      if (code.textContent.length <= 24) {
        code.classList.add("site-whole");
        continue;
      }
      const parts = code.textContent.split(/(?<=[./_,=:])(?=\w)/);
      code.replaceChildren(...parts.flatMap((part) => [part, document.createElement("wbr")]));
    }
  }
}

document.addEventListener("DOMContentLoaded", () => {
  offerVersions();
  shapeTables();
});
