"""Code that runs in Spark's Python workers: tasks that read and write files.

It imports no driver code (an import contract checks that), so that a worker starts quickly. What
needs no Spark at all is in `frazil.datafiles`. The readers and writers of `format("frazil")` are
the exception: Spark sends them to its workers as a whole, from `frazil.spark.streams`.
"""
