"""The content of the measured thread. It imports nothing, because the environments of peers have no Lockstitch."""

STEPS = 5
"""Steps of a worker's thread: four that use the tool, and the answer."""

TEXT = "The depot in Graz has the parcel. " * 55
RESULT = "One parcel, 2.4 kg, waits at shelf 7. " * 50
ANSWER = "Done."
