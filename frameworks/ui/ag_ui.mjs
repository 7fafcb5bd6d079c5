// A client of AG-UI. Arguments: URL of the server, agent, id of the thread, and what the user does.
import { createInterface } from 'node:readline';
import { HttpAgent } from '@ag-ui/client';

// The client rejects a second promise, which nothing handles, if the connection is lost. A browser only logs it.
process.on('unhandledRejection', (error) => console.error(error));

const [url, name, threadId, act] = process.argv.slice(2);
const agent = new HttpAgent({ url: `${url}/api/agents/${name}/ag-ui`, threadId });
agent.addMessage({ id: 'u1', role: 'user', content: 'Go' });
let outcome;
const run = async (input = {}, onContent = () => {}) => {
  try {
    await agent.runAgent(input, {
      onRunFinishedEvent: ({ event }) => void (outcome = event.outcome),
      onRunErrorEvent: ({ event }) => console.log(JSON.stringify({ error: event.message })),
      onTextMessageContentEvent: onContent,
    });
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
};

if (act === 'interrupted') {
  let told = false;
  await run({}, ({ textMessageBuffer }) => {
    if (!told && textMessageBuffer.length > 100) {
      told = true;
      console.log(JSON.stringify({ half: textMessageBuffer }));
    }
  });
  for await (const _ of createInterface({ input: process.stdin })) break;
  await run();
} else {
  await run();
  if (act === 'approve' || act === 'deny') {
    const interruptId = outcome.interrupts[0].id;
    const payload = { approved: act === 'approve', reason: 'Too much' };
    await run({ resume: [{ interruptId, status: 'resolved', payload }] });
  } else if (act === 'confirm') {
    agent.addMessage({ id: 't1', role: 'tool', toolCallId: outcome.pendingToolCallIds[0], content: 'yes' });
    await run();
  }
}
console.log(JSON.stringify({ outcome, messages: agent.messages }));
process.exit(0);
