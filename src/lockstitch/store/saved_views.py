"""Views of the list of threads: save, find, rename and delete them.

The table `store.saved_views` has the views of all projects. The functions of this module check the values, and keep at
most one default view per project.
"""

from collections.abc import Mapping, Sequence

from lockstitch.backend import Where
from lockstitch.errors import Conflict, NotFound, Refused
from lockstitch.model import Json, SavedView
from lockstitch.store.queries.thread_list import order_of
from lockstitch.store.store import Store

MOST = 100
"""Maximum number of views of a project."""


async def saved_views(store: Store) -> list[SavedView]:
    """Return the views of the project, sorted by name.

    Args:
        store: The store.
    """
    return await store.saved_views.find(Where("project", "=", store.project), order=("name",), limit=MOST)


async def save_view(
    store: Store,
    name: str,
    *,
    filters: Mapping[str, str] | None = None,
    columns: Sequence[str] = (),
    sort: str = "time",
    ascending: bool = False,
    is_default: bool = False,
) -> SavedView:
    """Store a view and return it. It replaces the view with this name.

    Args:
        store: The store. The view belongs to its project.
        name: Name of the view.
        filters: Filters, by the name of their URL parameter on the page.
        columns: Names of the columns. Empty: the default columns.
        sort: `time`, `latency`, `tokens` or `cost`.
        ascending: True if the lowest value comes first.
        is_default: True if the list opens with this view. The earlier default view is then an ordinary view.

    Raises:
        Refused: If a value is not valid, or if the project has too many views.
    """
    order_of(sort, ascending)
    if not name.strip() or "/" in name:
        raise Refused("The name of a view must not be empty or contain a slash.")
    views = await saved_views(store)
    earlier = next((view for view in views if view.name == name), None)
    if earlier is None and len(views) >= MOST:
        raise Refused(f"Project {store.project} has {MOST} views. Delete a view first.")
    now = store.clock.now()
    stored: Json = {"filters": dict(filters or {}), "columns": list(columns), "sort": sort, "ascending": ascending}
    view = SavedView(
        project=store.project,
        name=name,
        **stored,
        is_default=is_default,
        created_at=now if earlier is None else earlier.created_at,
        updated_at=now,
    )
    replaced = [other.changed(is_default=False) for other in views if is_default and other.is_default]
    await store.saved_views.put(*(other for other in replaced if other.name != name), view)
    return view


async def rename_view(store: Store, name: str, new_name: str) -> SavedView:
    """Give a view another name and return it.

    Args:
        store: The store. Views of other projects are not found.
        name: Name of the view.
        new_name: The new name.

    Raises:
        NotFound: If the project has no such view.
        Conflict: If the project has a view with the new name. Nothing was changed.
        Refused: If the new name is not valid.
    """
    view = await store.saved_views.get(store.project, name)
    if name == new_name:
        return view
    if await store.saved_views.get_or_none(store.project, new_name) is not None:
        raise Conflict(f"Project {store.project} has a view {new_name!r}. Nothing was changed.")
    renamed = await save_view(
        store,
        new_name,
        filters=view.filters,
        columns=view.columns,
        sort=view.sort,
        ascending=view.ascending,
        is_default=view.is_default,
    )
    await delete_view(store, name)
    return renamed


async def delete_view(store: Store, name: str) -> None:
    """Delete a view.

    Args:
        store: The store. Views of other projects stay.
        name: Name of the view.

    Raises:
        NotFound: If the project has no such view.
    """
    if not await store.saved_views.delete(project=store.project, name=name):
        raise NotFound(f"View {name!r} not found in project {store.project}.")
