"""`make docs`: a web site of the repository's pages, which stay where they are.

    pages: which files are pages, and where each one lies in the site
    shelves: the navigation, from docs/README.md ─┐
    links: what leaves the site gets an address  ─┴─► source: copies of the pages, in a folder
      ─► Sphinx, from a virtual environment of its own (tools/bootstrap docs) ─► FOLDER/VERSION
    versions ─► FOLDER/versions.js for the selector, FOLDER/index.html

Sphinx fails on a link to a page or a heading that does not exist. sphinx/ has its configuration.
"""
