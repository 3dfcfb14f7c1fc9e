"""Scores on demand: standing sessions in which one party asks about people, and what each question costs."""
