# One image for all programs: the command says which (scheduler, worker, web, ...).
# Tasks of your own packages need them installed too: FROM this image, then `pip install` yours.

FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.12-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels gristmill \
    && useradd --create-home --uid 10001 gristmill
USER gristmill
WORKDIR /home/gristmill
ENV PYTHONUNBUFFERED=1
EXPOSE 8700
ENTRYPOINT ["gristmill"]
CMD ["--help"]
