//! Fits an image into the limits of a model: decodes and measures it, and scales it down if it is
//! too large.
//!
//! Without the feature `images`, the size in pixels is unknown, and an image with too many bytes is
//! rejected.

use soong_protocol::{ErrorInfo, InlineFile};

use super::{Fitted, InputLimits, check_size};

/// Returns the image, scaled down if its size exceeds the limits.
///
/// # Errors
/// `payload_too_large` if it cannot be scaled; `validation_error` if it is not an image of its
/// content type.
#[cfg(feature = "images")]
pub(super) async fn fit(
    file: InlineFile,
    label: String,
    limits: &InputLimits,
) -> Result<Fitted, ErrorInfo> {
    /// Maximum number of images that are decoded at the same time: each may use 512 MiB.
    static DECODERS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);
    // The semaphore is never closed.
    let _permit = DECODERS.acquire().await;
    let limits = limits.clone();
    let task = tokio::task::spawn_blocking(move || scaling::fit(file, &label, &limits));
    task.await.map_err(|error| {
        ErrorInfo::new(soong_protocol::ErrorCode::InternalError, error.to_string())
    })?
}

/// Returns the image if it has few enough bytes.
///
/// # Errors
/// `payload_too_large` if it has not.
#[cfg(not(feature = "images"))]
pub(super) async fn fit(
    file: InlineFile,
    label: String,
    limits: &InputLimits,
) -> Result<Fitted, ErrorInfo> {
    check_size(
        &label,
        file.bytes.len() as u64,
        limits.image_bytes,
        "model.max_image_bytes",
    )?;
    Ok(Fitted {
        file,
        pixels: None,
        scaled_from: None,
    })
}

#[cfg(feature = "images")]
mod scaling {
    use std::io::Cursor;

    use image::{
        DynamicImage, ImageDecoder, ImageFormat, ImageReader, codecs::jpeg::JpegEncoder,
        imageops::FilterType,
    };
    use soong_protocol::{ErrorCode, ErrorInfo, InlineFile};

    use super::{Fitted, InputLimits, check_size};

    /// Quality of scaled JPEG images, in percent.
    const JPEG_QUALITY: u8 = 85;
    /// Text of the decoder's error about a wrong checksum.
    const CHECKSUM_ERROR: &str = "CRC error";
    /// Marker of the end of a JPEG image. The decoder accepts images without it.
    const JPEG_END: [u8; 2] = [0xff, 0xd9];
    /// Factor by which the side of an image is reduced while its file is too large.
    const STEP: f64 = 0.75;
    /// Minimum side to which an image is reduced, in pixels.
    const MIN_SIDE: u32 = 64;

    pub(super) fn fit(
        file: InlineFile,
        label: &str,
        limits: &InputLimits,
    ) -> Result<Fitted, ErrorInfo> {
        let content_type = file.content_type.clone();
        let invalid = |error: &dyn std::fmt::Display| {
            let message = format!("{label:?} is not a valid {content_type}: {error}");
            ErrorInfo::new(ErrorCode::ValidationError, message)
        };
        let format = ImageFormat::from_mime_type(&content_type)
            .ok_or_else(|| invalid(&"the type is unknown"))?;
        // The default limit of the decoders is 512 MiB of memory.
        let mut decoder = ImageReader::with_format(Cursor::new(file.bytes.as_slice()), format)
            .into_decoder()
            .map_err(|error| invalid(&error))?;
        let (width, height) = decoder.dimensions();
        let orientation = decoder.orientation().map_err(|error| invalid(&error))?;
        // Services reject a request with an image that they cannot decode, so it is decoded even if
        // it fits.
        let fits_side = width <= limits.image_side && height <= limits.image_side;
        let fits = fits_side && file.bytes.len() as u64 <= limits.image_bytes;
        let mut original = match DynamicImage::from_decoder(decoder) {
            Ok(original) => original,
            // Services differ in whether they check the checksums of an image that is whole
            // otherwise.
            Err(error) if fits && error.to_string().contains(CHECKSUM_ERROR) => {
                return Ok(Fitted {
                    file,
                    pixels: Some((width, height)),
                    scaled_from: None,
                });
            }
            Err(error) => return Err(invalid(&error)),
        };
        if format == ImageFormat::Jpeg && !file.bytes.windows(2).any(|marker| marker == JPEG_END) {
            return Err(invalid(&"it is cut off"));
        }
        if fits {
            return Ok(Fitted {
                file,
                pixels: Some((width, height)),
                scaled_from: None,
            });
        }
        // A scaled image has no EXIF data, so it is turned here.
        original.apply_orientation(orientation);
        let scaled_from = Some((original.width(), original.height()));
        let mut side = limits.image_side.min(width.max(height));
        loop {
            let scaled = original.resize(side, side, FilterType::Triangle);
            let (content_type, bytes) = encode(&scaled, format).map_err(|error| invalid(&error))?;
            if bytes.len() as u64 <= limits.image_bytes || side <= MIN_SIDE {
                check_size(
                    label,
                    bytes.len() as u64,
                    limits.image_bytes,
                    "model.max_image_bytes",
                )?;
                let pixels = Some((scaled.width(), scaled.height()));
                let file = InlineFile {
                    content_type: content_type.to_owned(),
                    bytes,
                    ..file
                };
                return Ok(Fitted {
                    file,
                    pixels,
                    scaled_from,
                });
            }
            // The product is smaller than `side`, so it fits.
            side = ((f64::from(side) * STEP) as u32).max(MIN_SIDE);
        }
    }

    /// Encodes a scaled image: JPEG stays JPEG, the other formats become PNG.
    fn encode(
        image: &DynamicImage,
        format: ImageFormat,
    ) -> image::ImageResult<(&'static str, Vec<u8>)> {
        let mut bytes = Vec::new();
        if format == ImageFormat::Jpeg {
            image
                .to_rgb8()
                .write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY))?;
            return Ok(("image/jpeg", bytes));
        }
        image.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png)?;
        Ok(("image/png", bytes))
    }
}
