"""Echo: a composite model without weights, which answers with its prompt; see ``docs/echo.md``.

::

    prompt ──► ears ──► mouth ──► answer
                          └─ edge ``said`` ──► voice
"""
