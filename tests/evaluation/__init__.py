"""Whether the skill's commands answer questions: `python -m tests.evaluation.questions`."""
