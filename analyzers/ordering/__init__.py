"""What has to run before what: streams, records and waits, synchronizations, threads.

Made here: `exact` of whatever rests on a record → wait link (false where the link is inferred).
"""
