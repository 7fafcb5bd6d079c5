"""Run `lockstitch demo` from a checkout: kill an agent during a payment and resume it in another process.

The demo is in src/lockstitch/cli/demo/story.py, its agent in shop.py in the same folder. No key is needed.
`python examples/demo.py --model anthropic:claude-sonnet-5` uses a real model instead of the scripted one.
"""

import sys

from lockstitch.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(["demo", *sys.argv[1:]]))
