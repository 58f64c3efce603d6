"""A pipeline: pictures are drawn, shrunk and put on one sheet, with values going from task to task.

python examples/thumbnails.py
"""

import colorsys
import io

from PIL import Image, ImageDraw

from gristmill import Client, LocalCluster

SIZE, THUMBNAIL, COLUMNS, PICTURES = 400, 48, 4, 12


def draw(number: int) -> bytes:
    """A picture as PNG: rings of one colour."""
    image = Image.new("RGB", (SIZE, SIZE), "white")
    drawing = ImageDraw.Draw(image)
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(number / PICTURES, 0.8, 0.9))
    for ring in range(0, SIZE // 2, 20):
        drawing.ellipse((ring, ring, SIZE - ring, SIZE - ring), outline=(red, green, blue), width=8)
    return _png(image)


def shrink(picture: bytes) -> bytes:
    """The same, small enough for an overview."""
    image = Image.open(io.BytesIO(picture))
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return _png(image)


def put_together(thumbnails: list[bytes]) -> bytes:
    """One sheet of all of them."""
    rows = -(-len(thumbnails) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * THUMBNAIL, rows * THUMBNAIL), "white")
    for at, thumbnail in enumerate(thumbnails):
        sheet.paste(Image.open(io.BytesIO(thumbnail)), (at % COLUMNS * THUMBNAIL, at // COLUMNS * THUMBNAIL))
    return _png(sheet)


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def main() -> None:
    """Futures as arguments: the large pictures never come here, only the sheet does."""
    with LocalCluster(workers=2) as cluster, Client(cluster) as client:
        pictures = [client.submit(draw, number) for number in range(PICTURES)]
        thumbnails = [client.submit(shrink, picture) for picture in pictures]
        sheet = Image.open(io.BytesIO(client.submit(put_together, thumbnails).result()))
    colours = sheet.convert("RGB").getcolors(sheet.width * sheet.height)
    assert colours is not None
    print(f"a sheet of {sheet.width} x {sheet.height} pixels, {len(colours)} colours")


if __name__ == "__main__":
    main()
