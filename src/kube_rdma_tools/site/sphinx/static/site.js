// The selector of versions. ../versions.js, which lists them, is loaded as a script and not fetched:
// so the site works from a folder too, without a server.
document.addEventListener("DOMContentLoaded", () => {
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
});
