"""The documents are programs: their commands are run as written, the output they show is compared.

pages.py reads Markdown, rules.py says what a block lacks, shell.py runs commands. The tests here
run what needs no lab; tests/lab/machines/test_documents.py follows the other pages on a lab.
"""
