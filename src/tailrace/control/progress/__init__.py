"""What a job has done: told by its workers, and put together from what they tell.

`report`: what a worker tells the coordinator, twice a second. `summary`: the reports as one, for
`job.last_progress`. `traffic`: who sends how much to whom, for `job.traffic()`.
"""
