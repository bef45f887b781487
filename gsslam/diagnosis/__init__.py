"""What is wrong with a dataset or a computer, in plain words, and how to mend it."""
