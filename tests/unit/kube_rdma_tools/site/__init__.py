"""The site of the pages, but for Sphinx: links, navigation, versions."""
