// A chat of the AI SDK without a page. Arguments: URL of the server, agent, id of the chat, and what the user does.
import { createInterface } from 'node:readline';
import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from 'ai';

class State {
  messages = [];
  status = 'ready';
  error = undefined;
  pushMessage = (message) => (this.messages = [...this.messages, message]);
  popMessage = () => (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) =>
    (this.messages = this.messages.map((old, place) => (place === index ? structuredClone(message) : old)));
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {}

const [url, agent, id, act] = process.argv.slice(2);
const api = `${url}/api/agents/${agent}/ai-sdk`;
let finished = () => {};
const chat = new Chat({
  id,
  state: new State(),
  transport: new DefaultChatTransport({ api }),
  onError: (error) => console.log(JSON.stringify({ error: String(error) })),
  onFinish: () => finished(),
  sendAutomaticallyWhen: (state) =>
    lastAssistantMessageIsCompleteWithApprovalResponses(state) || lastAssistantMessageIsCompleteWithToolCalls(state),
});
const next = () => new Promise((resolve) => (finished = resolve));
const lastPart = (name) => chat.messages.at(-1)?.parts.findLast((part) => part.type === name);

if (act === 'interrupted') {
  // The test ends the server in the middle of the answer, and writes a line when another one runs.
  const sent = chat.sendMessage({ text: 'Go' });
  while (!(lastPart('text')?.text.length > 100)) await new Promise((resolve) => setTimeout(resolve, 5));
  console.log(JSON.stringify({ half: chat.messages.at(-1).parts }));
  await sent;
  for await (const _ of createInterface({ input: process.stdin })) break;
  await chat.resumeStream();
} else {
  await chat.sendMessage({ text: 'Go' });
  if (act === 'approve' || act === 'deny') {
    const answered = next();
    await chat.addToolApprovalResponse({
      id: lastPart('tool-pay').approval.id,
      approved: act === 'approve',
      reason: 'Too much',
    });
    await answered;
  } else if (act === 'confirm') {
    const answered = next();
    const { toolCallId } = lastPart('tool-confirm');
    await chat.addToolOutput({ tool: 'confirm', toolCallId, output: { sure: true } });
    await answered;
  } else if (act === 'regenerate') {
    await chat.regenerate();
  }
}
const history = await (await fetch(`${api}/${encodeURIComponent(id)}/messages`)).json();
console.log(JSON.stringify({ status: chat.status, messages: chat.messages, history }));
process.exit(0);
