from lockstitch import Agent, App

clerk = Agent("clerk", model="anthropic:claude-sonnet-5", instructions="You sell tea.", title=False)
app = App([clerk])
