"""The actions on jobs: what each does, its confirmation, its steps and its messages. Start with job_actions.py."""
