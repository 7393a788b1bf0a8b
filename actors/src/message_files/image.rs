//! Fits an image into the limits of a model: measures it, and scales it down if it is too large.
//!
//! Without the feature `images`, the size in pixels is unknown, and an image with too many bytes is rejected.

use soong_protocol::{ErrorInfo, InlineFile};

use super::{Fitted, InputLimits, check_size};

/// Returns the image, scaled down if its size exceeds the limits.
///
/// # Errors
/// `payload_too_large` if it cannot be scaled; `validation_error` if it is not an image of its content type.
pub(super) async fn fit(file: InlineFile, label: &str, limits: &InputLimits) -> Result<Fitted, ErrorInfo> {
    #[cfg(feature = "images")]
    {
        let (label, limits) = (label.to_owned(), limits.clone());
        let task = tokio::task::spawn_blocking(move || scaling::fit(file, &label, &limits));
        task.await.map_err(|error| ErrorInfo::new(soong_protocol::ErrorCode::InternalError, error.to_string()))?
    }
    #[cfg(not(feature = "images"))]
    {
        check_size(label, file.bytes.len() as u64, limits.image_bytes, "model.max_image_bytes")?;
        Ok(Fitted { size: file.bytes.len() as u64, file, pixels: None, scaled_from: None })
    }
}

#[cfg(feature = "images")]
mod scaling {
    use std::io::Cursor;

    use image::{DynamicImage, ImageFormat, ImageReader, Limits, codecs::jpeg::JpegEncoder, imageops::FilterType};
    use soong_protocol::{ErrorCode, ErrorInfo, InlineFile};

    use super::{Fitted, InputLimits, check_size};

    /// Maximum memory for decoding an image.
    const MAX_DECODED_BYTES: u64 = 512 * 1024 * 1024;
    /// Quality of scaled JPEG images, in percent.
    const JPEG_QUALITY: u8 = 85;
    /// Factor by which the side of an image is reduced while its file is too large.
    const STEP: f64 = 0.75;
    /// Minimum side to which an image is reduced, in pixels.
    const MIN_SIDE: u32 = 64;

    pub(super) fn fit(file: InlineFile, label: &str, limits: &InputLimits) -> Result<Fitted, ErrorInfo> {
        let invalid = |error: &dyn std::fmt::Display| {
            let message = format!("{label:?} is not a valid {}: {error}", file.content_type);
            ErrorInfo::new(ErrorCode::ValidationError, message)
        };
        let format = ImageFormat::from_mime_type(&file.content_type).ok_or_else(|| invalid(&"the type is unknown"))?;
        let reader = || {
            let mut reader = ImageReader::with_format(Cursor::new(file.bytes.as_slice()), format);
            let mut limits = Limits::default();
            limits.max_alloc = Some(MAX_DECODED_BYTES);
            reader.limits(limits);
            reader
        };
        let (width, height) = reader().into_dimensions().map_err(|error| invalid(&error))?;
        let fits_side = width <= limits.image_side && height <= limits.image_side;
        if fits_side && file.bytes.len() as u64 <= limits.image_bytes {
            return Ok(Fitted {
                size: file.bytes.len() as u64,
                file,
                pixels: Some((width, height)),
                scaled_from: None,
            });
        }
        let original = reader().decode().map_err(|error| invalid(&error))?;
        let mut side = limits.image_side.min(width.max(height));
        loop {
            let scaled = original.resize(side, side, FilterType::Triangle);
            let (content_type, bytes) = encode(&scaled, format).map_err(|error| invalid(&error))?;
            if bytes.len() as u64 <= limits.image_bytes || side <= MIN_SIDE {
                check_size(label, bytes.len() as u64, limits.image_bytes, "model.max_image_bytes")?;
                let pixels = (scaled.width(), scaled.height());
                let size = bytes.len() as u64;
                let file = InlineFile { content_type: content_type.to_owned(), bytes, ..file };
                return Ok(Fitted { file, size, pixels: Some(pixels), scaled_from: Some((width, height)) });
            }
            // The product is smaller than `side`, so it fits.
            side = ((f64::from(side) * STEP) as u32).max(MIN_SIDE);
        }
    }

    /// Encodes a scaled image: JPEG stays JPEG, the other formats become PNG.
    fn encode(image: &DynamicImage, format: ImageFormat) -> image::ImageResult<(&'static str, Vec<u8>)> {
        let mut bytes = Vec::new();
        if format == ImageFormat::Jpeg {
            image.to_rgb8().write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY))?;
            return Ok(("image/jpeg", bytes));
        }
        image.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png)?;
        Ok(("image/png", bytes))
    }
}
