"""`RecordMethods`: the methods of Agno's databases about memories, knowledge, evaluations and learnings."""

# pyright: basic, reportMissingImports=false

import re
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from agno.db.schemas.evals import EvalFilterType, EvalRunRecord, EvalType
from agno.db.schemas.knowledge import KnowledgeRow
from agno.db.schemas.memory import UserMemory
from agno.db.utils import validate_pagination

from lockstitch.integrations.agno.objects import plain
from lockstitch.integrations.agno.rows import Rows, equal, page_of, seconds, sorted_rows
from lockstitch.integrations.agno.side_records import Documents, Evaluations, Memories
from lockstitch.model import Json, codec
from lockstitch.store import AnyOf, Condition, Store, Where

_LEARNING_FIELDS = ("learning_type", "agent_id", "team_id", "workflow_id", "session_id", "namespace")
_LEARNING_FIELDS += ("entity_id", "entity_type")


class RecordMethods:
    """Memories, knowledge, evaluations and learnings."""

    def __init__(self, store: Store) -> None:
        self._clock = store.clock
        self._memories = Memories(store)
        self._documents = Documents(store)
        self._evaluations = Evaluations(store)
        self._learnings = Rows(store, "learning")

    def _now(self) -> int:
        return int(self._clock.now().timestamp())

    # Memories

    async def upsert_user_memory(self, memory: UserMemory, deserialize: bool | None = True) -> Any:
        """Store a memory. A new one gets an id if it has none."""
        memory.memory_id = memory.memory_id or str(uuid4())
        stored = await self._memories.get(memory.memory_id)
        return await self._put_memory(memory, stored, self._now(), deserialize)

    async def upsert_memories(
        self, memories: Sequence[UserMemory], deserialize: bool | None = True, preserve_updated_at: bool = False
    ) -> list[Any]:
        """Store memories."""
        results: list[Any] = []
        for memory in memories:
            memory.memory_id = memory.memory_id or str(uuid4())
            stored = await self._memories.get(memory.memory_id)
            updated_at = memory.updated_at if preserve_updated_at else self._now()
            created = {**(stored or {}), "created_at": (stored or {}).get("created_at") or memory.created_at}
            results.append(await self._put_memory(memory, created, updated_at, deserialize))
        return results

    async def _put_memory(
        self, memory: UserMemory, stored: Json | None, updated_at: int | None, deserialize: bool | None
    ) -> Any:
        """Write a memory. The owner and the creation time of a stored one stay."""
        is_stored = stored is not None and "memory_id" in stored
        row = {
            "id": memory.memory_id,
            "memory": memory.memory,
            "topics": memory.topics,
            "input": memory.input,
            "feedback": memory.feedback,
            "agent_id": memory.agent_id,
            "team_id": memory.team_id,
            "user_id": stored["user_id"] if stored is not None and is_stored else memory.user_id,
            "created_at": memory.created_at if stored is None else stored["created_at"],
            "updated_at": memory.created_at if stored is None else updated_at,
        }
        await self._memories.put(plain(row))
        written = {"memory_id": row["id"], **{name: value for name, value in row.items() if name != "id"}}
        return UserMemory.from_dict(written) if deserialize else written

    async def get_user_memory(self, memory_id: str, deserialize: bool | None = True, user_id: str | None = None) -> Any:
        """Return a memory, or None if there is none or if it belongs to another user."""
        row = await self._memories.get(memory_id)
        if row is None or (user_id is not None and row["user_id"] != user_id):
            return None
        return UserMemory.from_dict(row) if deserialize else row

    async def get_user_memories(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        topics: Sequence[str] | None = None,
        search_content: str | None = None,
        limit: int | None = None,
        page: int | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        deserialize: bool | None = True,
    ) -> Any:
        """Return the memories with all topics that meet all conditions. Without `deserialize`, also their number."""
        validate_pagination(limit, page)
        where: list[Condition] = [] if user_id is None else [self._memories.of_user(user_id)]
        where += [
            self._memories.own_value(name, value)
            for name, value in (("agent_id", agent_id), ("team_id", team_id))
            if value is not None
        ]
        rows = [
            row
            for row in await self._memories.find(*where)
            if {*(topics or ())} <= {*(row["topics"] or ())}
            and (search_content or "").lower() in str(row["memory"]).lower()
        ]
        chosen = page_of(sorted_rows(rows, sort_by, sort_order), limit, page)
        return [UserMemory.from_dict(row) for row in chosen] if deserialize else (chosen, len(rows))

    async def get_all_memory_topics(self, user_id: str | None = None) -> list[str]:
        """Return the topics of all memories, or of those of a user."""
        rows = await self._memories.find(*([] if user_id is None else [self._memories.of_user(user_id)]))
        return [*dict.fromkeys(topic for row in rows for topic in row["topics"] or ())]

    async def get_user_memory_stats(
        self, limit: int | None = None, page: int | None = None, user_id: str | None = None
    ) -> tuple[list[Json], int]:
        """Return the number of memories of each user and the time of the last change, the latest first."""
        validate_pagination(limit, page)
        stats: dict[str, Json] = {}
        for row in await self._memories.find(*([] if user_id is None else [self._memories.of_user(user_id)])):
            if row["user_id"] is not None:
                empty = {"user_id": row["user_id"], "total_memories": 0, "last_memory_updated_at": 0}
                stat = stats.setdefault(row["user_id"], empty)
                stat["total_memories"] += 1
                stat["last_memory_updated_at"] = max(stat["last_memory_updated_at"], row["updated_at"] or 0)
        rows = sorted_rows([*stats.values()], "last_memory_updated_at", "desc")
        return page_of(rows, limit, page), len(rows)

    async def delete_user_memory(self, memory_id: str, user_id: str | None = None) -> None:
        """Delete a memory, if it belongs to the user."""
        await self._memories.delete([memory_id], user_id)

    async def delete_user_memories(self, memory_ids: Sequence[str], user_id: str | None = None) -> None:
        """Delete memories that belong to the user."""
        await self._memories.delete(memory_ids, user_id)

    async def clear_memories(self) -> None:
        """Delete all memories that Agno has stored in the project."""
        await self._memories.delete(None)

    # Knowledge

    async def upsert_knowledge_content(self, knowledge_row: KnowledgeRow) -> KnowledgeRow:
        """Store a content. Raises `ValueError` if it belongs to another user."""
        stored = await self._documents.get(str(knowledge_row.id))
        if stored is not None and knowledge_row.user_id is not None and stored.get("user_id") != knowledge_row.user_id:
            raise ValueError(f"Knowledge content {knowledge_row.id} not found")
        row: Json = codec.loads(knowledge_row.model_dump_json())
        if stored is not None:
            row = {**stored, **{name: value for name, value in row.items() if value is not None}}
        await self._documents.put(row)
        return knowledge_row

    async def get_knowledge_content(self, id: str, user_id: str | None = None) -> KnowledgeRow | None:
        """Return a content, or None if there is none or if it belongs to another user."""
        row = await self._documents.get(id)
        if row is None or (user_id is not None and row.get("user_id") not in (None, user_id)):
            return None
        return KnowledgeRow.model_validate(row)

    async def get_knowledge_contents(
        self,
        limit: int | None = None,
        page: int | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        linked_to: str | None = None,
        user_id: str | None = None,
    ) -> tuple[list[KnowledgeRow], int]:
        """Return contents, those of a user with those that have no user, and their number."""
        validate_pagination(limit, page)
        where: list[Condition] = []
        if linked_to is not None:
            where.append(Where("metadata", "=", linked_to, path=("linked_to",)))
        if user_id is not None:
            own = [self._documents.of_user(user_id), self._documents.own_value("user_id", None)]
            where.append(AnyOf(own))
        rows = sorted_rows(await self._documents.find(*where), sort_by, sort_order)
        return [KnowledgeRow.model_validate(row) for row in page_of(rows, limit, page)], len(rows)

    async def delete_knowledge_content(self, id: str, user_id: str | None = None) -> None:
        """Delete a content, if it belongs to the user."""
        await self._documents.delete([id], user_id)

    # Evaluations

    async def create_eval_run(self, eval_run: EvalRunRecord) -> EvalRunRecord:
        """Store a new evaluation. Raises `Conflict` if there is one with its id."""
        now = self._now()
        row: Json = codec.loads(eval_run.model_dump_json())
        run_id = row.pop("run_id")
        # Newer versions of Agno have the user in the record.
        await self._evaluations.create({"user_id": None, **row, "id": run_id, "created_at": now, "updated_at": now})
        return eval_run

    async def get_eval_run(self, eval_run_id: str, deserialize: bool | None = True, user_id: str | None = None) -> Any:
        """Return an evaluation, or None if there is none or if it belongs to another user."""
        row = await self._evaluations.get(eval_run_id)
        if row is None or (user_id is not None and row.get("user_id") != user_id):
            return None
        return EvalRunRecord.model_validate(row) if deserialize else row

    async def get_eval_runs(
        self,
        limit: int | None = None,
        page: int | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        model_id: str | None = None,
        filter_type: EvalFilterType | None = None,
        eval_type: Sequence[EvalType] | None = None,
        deserialize: bool | None = True,
        user_id: str | None = None,
    ) -> Any:
        """Return the evaluations that meet all conditions. Without `deserialize`, also their number."""
        validate_pagination(limit, page)
        values = {
            "agent_id": agent_id,
            "team_id": team_id,
            "workflow_id": workflow_id,
            "model_id": model_id,
            "user_id": user_id,
        }
        where: list[Condition] = [
            self._evaluations.own_value(name, value) for name, value in values.items() if value is not None
        ]
        if eval_type:
            where.append(Where("type", "in", [EvalType(kind).value for kind in eval_type]))
        if filter_type is not None:
            of_kind = ("agno", f"{EvalFilterType(filter_type).value}_id")
            where.append(Where("input", "is not null", path=of_kind))
        rows = sorted_rows(await self._evaluations.find(*where), sort_by or "created_at", sort_order)
        chosen = page_of(rows, limit, page)
        return [EvalRunRecord.model_validate(row) for row in chosen] if deserialize else (chosen, len(rows))

    async def rename_eval_run(
        self, eval_run_id: str, name: str, deserialize: bool | None = True, user_id: str | None = None
    ) -> Any:
        """Set the name of an evaluation. Return it, or None if there is none."""
        if await self._change_evaluation(eval_run_id, user_id, {"name": name}) is None:
            return None
        return await self.get_eval_run(eval_run_id, deserialize, user_id)

    async def update_eval_run_user_id(self, eval_run_id: str, user_id: str) -> None:
        """Set the user of an evaluation."""
        await self._change_evaluation(eval_run_id, None, {"user_id": user_id})

    async def _change_evaluation(self, eval_run_id: str, user_id: str | None, values: Json) -> Json | None:
        row = await self.get_eval_run(eval_run_id, False, user_id)
        if row is not None:
            row = {**row, **values, "id": row["run_id"], "updated_at": self._now()}
            del row["run_id"]
            await self._evaluations.put(row)
        return row

    async def delete_eval_runs(self, eval_run_ids: Sequence[str], user_id: str | None = None) -> None:
        """Delete evaluations that belong to the user."""
        await self._evaluations.delete(eval_run_ids, user_id)

    # Learnings

    async def upsert_learning(
        self,
        id: str,
        learning_type: str,
        content: Json,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        session_id: str | None = None,
        namespace: str | None = None,
        entity_id: str | None = None,
        entity_type: str | None = None,
        metadata: Json | None = None,
    ) -> None:
        """Store a learning. Only the content and the metadata of a stored one change."""
        now = self._now()
        new = {
            "learning_id": id,
            "learning_type": learning_type,
            "namespace": namespace,
            "user_id": user_id,
            "agent_id": agent_id,
            "team_id": team_id,
            "workflow_id": None,
            "session_id": session_id,
            "entity_id": entity_id,
            "entity_type": entity_type,
        }

        def changed(row: Json | None) -> tuple[Json, Json]:
            values = {"content": content, "metadata": metadata, "updated_at": now}
            row = {**(row or {**new, "created_at": now}), **plain(values)}
            return row, {"user_id": row["user_id"], "created_at": seconds(row["created_at"])}

        await self._learnings.change(id, changed)

    async def get_learning(
        self,
        learning_type: str,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        session_id: str | None = None,
        namespace: str | None = None,
        entity_id: str | None = None,
        entity_type: str | None = None,
    ) -> Json | None:
        """Return the content of the first learning that meets all conditions, or None."""
        values = (learning_type, agent_id, team_id, workflow_id, session_id, namespace, entity_id, entity_type)
        rows = await self._find_learnings(dict(zip(_LEARNING_FIELDS, values, strict=True)), user_id, limit=1)
        return {"content": rows[0]["content"]} if rows else None

    async def get_learnings(
        self,
        learning_type: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        session_id: str | None = None,
        namespace: str | None = None,
        entity_id: str | None = None,
        entity_type: str | None = None,
        limit: int | None = None,
    ) -> list[Json]:
        """Return the learnings that meet all conditions, the latest change first."""
        values = (learning_type, agent_id, team_id, workflow_id, session_id, namespace, entity_id, entity_type)
        rows = await self._find_learnings(dict(zip(_LEARNING_FIELDS, values, strict=True)), user_id)
        return page_of(sorted_rows(rows, "updated_at", "desc"), limit, None)

    async def search_learnings(
        self,
        query: str,
        learning_type: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        session_id: str | None = None,
        namespace: str | None = None,
        entity_id: str | None = None,
        entity_type: str | None = None,
        limit: int | None = None,
    ) -> list[Json]:
        """Return the learnings whose content contains a text. A space of it also matches an underscore."""
        words = [re.escape(word) for word in re.split(r"[\s_]+", query) if word]
        if not words:
            return []
        pattern = re.compile("[ _]".join(words), re.IGNORECASE)
        rows = await self.get_learnings(
            learning_type, user_id, agent_id, team_id, workflow_id, session_id, namespace, entity_id, entity_type
        )
        matches = [row for row in rows if pattern.search(codec.dumps(row["content"]).decode())]
        return page_of(matches, limit, None)

    async def get_learning_by_id(self, id: str) -> Json | None:
        """Return a learning, or None."""
        return await self._learnings.get(id)

    async def list_learnings(
        self,
        learning_type: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        session_id: str | None = None,
        namespace: str | None = None,
        entity_id: str | None = None,
        entity_type: str | None = None,
        include_global: bool = False,
        limit: int = 100,
        page: int = 1,
        sort_by: str | None = None,
        sort_order: str | None = None,
    ) -> tuple[list[Json], int]:
        """Return a page of learnings and the number of all that match."""
        values = (learning_type, agent_id, team_id, None, session_id, namespace, entity_id, entity_type)
        named: Json = dict(zip(_LEARNING_FIELDS, values, strict=True))
        rows = await self._find_learnings(named, user_id, include_global=include_global)
        return page_of(sorted_rows(rows, sort_by or "updated_at", sort_order or "desc"), limit, page), len(rows)

    async def get_learnings_user_stats(
        self,
        learning_type: str | None = None,
        limit: int | None = None,
        page: int | None = None,
        user_id: str | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
    ) -> tuple[list[Json], int]:
        """Return the users with learnings and the time of the last change, the latest first."""
        validate_pagination(limit, page)
        last: dict[str, int] = {}
        for row in await self._find_learnings({"learning_type": learning_type}, user_id):
            if row["user_id"] is not None:
                last[row["user_id"]] = max(last.get(row["user_id"], 0), row["updated_at"] or 0)
        stats: list[Json] = [{"user_id": user, "last_learning_updated_at": at} for user, at in last.items()]
        field = "user_id" if sort_by == "user_id" else "last_learning_updated_at"
        return page_of(sorted_rows(stats, field, sort_order), limit, page), len(stats)

    async def update_learning(self, id: str, content: Json, metadata: Json | None = None) -> bool:
        """Replace the content of a learning, and its metadata if they are set. Return False if there is none."""

        def changed(row: Json | None) -> tuple[Json, Json] | None:
            if row is None:
                return None
            values: Json = {"content": content, "updated_at": self._now()}
            values |= {} if metadata is None else {"metadata": metadata}
            row = {**row, **plain(values)}
            return row, {"user_id": row["user_id"], "created_at": seconds(row["created_at"])}

        return await self._learnings.change(id, changed) is not None

    async def delete_learning(self, id: str) -> bool:
        """Delete a learning. Return False if there is none."""
        return await self._learnings.delete(Where("id", "=", id)) > 0

    async def delete_user_learnings(self, user_id: str, learning_type: str | None = None) -> int:
        """Delete the learnings of a user. Return their number."""
        return await self._learnings.delete(Where("user_id", "=", user_id), *equal(learning_type=learning_type))

    async def _find_learnings(
        self, values: dict[str, Any], user_id: str | None, *, include_global: bool = False, limit: int | None = None
    ) -> list[Json]:
        where = equal(**values)
        if user_id is not None:
            users = [Where("user_id", "=", user_id), *([Where("user_id", "is null")] if include_global else [])]
            where.append(AnyOf(users))
        return await self._learnings.find(*where, order=("created_at", "id"), limit=limit)
