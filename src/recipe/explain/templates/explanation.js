for (const picture of document.querySelectorAll(".picture")) bindPicture(picture);
