"""Kill an agent in the middle of a payment, and watch another process finish it: `lockstitch demo`, from a checkout.

The story is told in src/lockstitch/cli/demo/story.py, the agent is defined in shop.py beside it. No key is needed;
`python examples/demo.py --model anthropic:claude-sonnet-5` uses a real model instead of the scripted one.
"""

import sys

from lockstitch.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(["demo", *sys.argv[1:]]))
