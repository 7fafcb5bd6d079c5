"""Routes of datasets and evaluations."""

from fastapi import APIRouter

from lockstitch.server.api.evals import datasets, evaluations


def routers() -> tuple[APIRouter, ...]:
    return (datasets.router, evaluations.router)
